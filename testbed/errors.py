class TestbedError(Exception):
    """Something a person can put right: the text says what was wrong, where, and what to do."""

    __test__ = False  # the name begins like a test class; pytest must not collect it
