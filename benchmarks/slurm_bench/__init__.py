"""Parts of the benchmark of the submit hook.

hooks.lua     job_submit.lua of the benchmark: all hooks that are compared, timed, in one file
hooks.py      puts them into a bench, and reads what they took
do_nothing.py the daemon behind the bare round trip
submit.c      submits jobs as fast as slurmctld takes them
client.py     builds and runs submit.c
jobs.py       the jobs that are submitted
figures.py    what was measured, as one table and the goals
"""
