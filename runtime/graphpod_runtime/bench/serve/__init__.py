"""`graphpod-engine bench serve`: load on any OpenAI-compatible server, and what its clients saw.

`load` says what is asked, as a pure function of a seed. `drive` asks it: several processes, each with an event loop
and its share of the requests. `figures` turns their records into percentiles, throughput and goodput. `output` prints
and draws those. No torch anywhere: the server is another process, or another machine.
"""
