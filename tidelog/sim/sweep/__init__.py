"""The sweep of CTRL (FAST '18): every pattern of damaged copies of the last four entries of a log, on simulated disks.

python -m tidelog.sim.sweep --protocol isr --damage flip --stop clean
"""
