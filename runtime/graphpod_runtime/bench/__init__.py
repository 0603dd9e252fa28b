"""`graphpod-engine bench graphs`: what graphs bring on one machine with one model, compared with what its hardware
allows. `graphpod-engine bench serve`: a server under load (`serve`).

`bench graphs` measures nothing itself and has no torch: every variant runs in a process of its own (`child`), which the
run (`run`) sends its messages to. What they found is one value (`figures.result`), written as JSON; the table and the
picture (`output`) are drawn from that value alone.
"""
