"""The extender's HTTP server: stock uvicorn around an ASGI application.

service      the process: started, drained, stopped
connections  limits of time, size and number around uvicorn's connections
app          paths, bodies, answers
verbs        filter, prioritize, preempt: an error of ours never loses a node
admitting    admission reviews
state        what decisions rest on, replaced as a whole
loading, upkeep   the first load, and what changes on disk
certificates the pair of now, for every new handshake
metrics      what is counted

Log, reload and the predictor's loading are those of predictor.service.
"""
