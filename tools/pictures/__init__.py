"""Pictures of docs/images, made from real runs: `make pictures`, or `python -m tools.pictures [NAME ...]`.

Recordings of terminals are drawn by Rich, plots by matplotlib (docs/decisions/0073). Each is one SVG file without
scripts and fonts of others, whose text can be selected, on a background of its own.
"""
