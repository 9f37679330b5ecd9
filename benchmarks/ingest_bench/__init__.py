"""Parts of the benchmark of the ingest.

sacct.py    prints as many rows as are asked for, as sacct does
fill.py     fills a history in a process of its own and tells its memory on the way
"""
