"""kopf's handlers. No other package imports kopf.

Two threads, each with an event loop of its own:

    kopf's    watches the InferenceServices, warns at admission, answers the liveness probe
    the main  everything else: store, queue, workers, Lease and every write

Nothing is shared. A handler passes what it saw to the main loop by `call_soon_threadsafe`, and reads one verdict that
the main loop leaves for it (`manager.health`). kopf, when it stops, cancels each younger task of its loop: on a loop of
its own these are only its own.

kopf takes some errors for fatal, such as an ERROR event of a watch or a list that was refused. Such an error ends one
run of kopf's operator and not the process: `manager.kopf_thread` begins another.
"""
