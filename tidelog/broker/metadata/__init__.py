"""The metadata log of the cluster on this broker: founding, joining, snapshots, and the image that its records yield.

The Paxos log that agrees on its entries is in `consensus`; the effects of the records are in `tidelog.controller`.
"""
