"""The graphpod operator: InferenceService in, pods with proved graphs out.

The way of an edit, room by room; each room imports only rooms above it in this list (the contract `layers` in
pyproject.toml), and no two files import each other:

    what everything speaks of
        api          the InferenceService: fields, names, quantities
        schema       the API as the server has it: CRD, OpenAPI, what does not fit
        conditions   what a condition can say: types, reasons, next steps
        kube         the API server: kinds, port, client, Lease
    seen
        cache        projections of objects, and the store of them
        watch        lists, watches, and the queue of keys
        telemetry    metrics and logs
    planned
        resolve      from a spec to the resolver's input and to engine.json
        install      what the operator's installer decides
        render       the bodies of the children
        plan         which children there should be, and the changes that lead there
        revisions    what pods are pinned to: read, rebuilt, deleted when old
    applied
        apply        one write at a time
    observed
        observe      what the pods say, and why one does not serve
    reported
        events       what users are informed of once
        status       status and conditions
    all of it, once for each key
        controller   the reconcile: calls the rooms above in this order
    for people
        explain      the same plan without a cluster; warnings at admission
        advise       sizes of graphs from what passes asked for
        terminal     the commands: why, top, models
        docs         the reference pages
    kopf's side
        handlers     the watch of services, warnings at admission, the liveness probe: on a loop of their own
    the process
        manager      parts put together, tasks, probes, signals
        cli          the command line

kopf is imported in `handlers` alone, the Kubernetes client in `kube.connection` alone. Everything from
`intent` to `status`, but for `apply` and the reading of pods, is plain functions over values.
"""
