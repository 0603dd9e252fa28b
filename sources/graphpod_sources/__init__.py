"""Models from where they are published into a folder that engines read: the program `graphpod-fetch`."""
