"""The sweep of CTRL (FAST '18), whole: every pattern of damaged copies, on simulated disks.

python -m tidelog.sim.sweep --protocol isr --damage flip --stop clean
"""
