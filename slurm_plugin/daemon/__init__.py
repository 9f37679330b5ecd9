"""The decision daemon: what the hook in slurmctld asks over a Unix socket.

listen        the socket: made, guarded against a second daemon, removed
connection    one connection: lines in, lines out, bounded
decisions     a deadline, turns for each user
lanes, decider_child      the two processes that decide: now, and aside
predictions   those that were made before, for the one that answers now
reconcile     pending jobs that were not decided at submit, or changed since, made good
views         the view of Slurm, read by a child process
metrics, notify           what the outside sees
service       all of it, started, reloaded and stopped
client        the other end, for commands and tests
"""

PACKAGES = ("slurm_plugin", "predictor")  # whose words are logged
