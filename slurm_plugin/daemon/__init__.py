"""The decision daemon: what the hook in slurmctld asks over a Unix socket.

listen        the socket: made, guarded against a second daemon, removed
connection    one connection: lines in, lines out, bounded
decisions     one worker thread, a deadline, answers kept for repeats
snapshots     the view of Slurm, read by a child process
follow_ups    limits the daemon changes itself
metrics, notify           what the outside sees
service       all of it, started, reloaded and stopped
client        the other end, for commands and tests
"""

PACKAGES = ("slurm_plugin", "predictor")  # whose words are logged
