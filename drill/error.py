"""Why a drill ends without a verdict."""


class DrillError(Exception):
    """The drill itself could not be carried out; says why in one line."""
