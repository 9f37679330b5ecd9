"""Parts of the benchmark of the extender.

payloads.py   nodes and calls, made of what was captured from a control plane
client.py     one keep-alive connection that asks as kube-scheduler does, timed
do_nothing.py the extender that does nothing, on the same server stack
api_server.py the API server that our extender watches and writes to
servers.py    starts and ends these processes
figures.py    what was measured, as one table and the goals
"""
