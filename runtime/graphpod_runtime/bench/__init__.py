"""`graphpod-engine bench graphs`: what graphs bring on one machine with one model, beside what its hardware allows.

The command measures nothing itself and has no torch: every variant runs in a process of its own (`child`), told what
to do by the one that orders the turns (`turns`). What they found is one value (`result`), written as JSON; the table
and the picture are drawn from that value alone.
"""
