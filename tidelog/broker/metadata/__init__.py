"""The metadata log of the cluster: founding, campaigns, snapshots, and the image that its entries make.

The engine that agrees on its entries is in `consensus`; what the records mean is in `tidelog.controller`.
"""
