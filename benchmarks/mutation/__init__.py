"""Mutation testing: small faults put into the code one at a time, and whether the tests find each. `make mutation`.

Three sources of faults: `mutants.toml`, faults that people thought of, each with the tests that should find it;
`draw.py`, faults that a seeded program makes anywhere in operator, engine and front; `policy.py`, mutmut's faults in
the policy package.
"""
