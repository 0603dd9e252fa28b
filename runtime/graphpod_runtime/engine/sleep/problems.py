"""Why weights cannot go, come back or be replaced; in each case the engine is as it was."""


class CannotSleep(Exception):
    """The weights would have nowhere to come back from."""


class CannotWake(Exception):
    """The device has no room for them any more."""


class CannotReload(Exception):
    """What is in the model's folder now is nothing that these graphs can run."""
