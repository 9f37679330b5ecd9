"""The extender's HTTP server.

listener     sockets and connections: limits of time, size and number
app          paths, bodies, answers, compression
verbs        filter, prioritize, preempt: an error of ours never loses a node
known        what was found out of a pod, kept for the next calls about its like
calls, later what is counted and logged of a call, once its answer has left
admitting    admission reviews
state        what decisions rest on, replaced as a whole
certificates the pair of now, for every new handshake
"""
