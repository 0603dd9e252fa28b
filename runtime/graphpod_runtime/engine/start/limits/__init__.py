"""The limits that a configuration leaves to the pod (Auto), as this start derives or measures them."""
