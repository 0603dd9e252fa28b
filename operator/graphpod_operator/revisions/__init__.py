"""Applied: the ControllerRevisions of a service: old ones deleted, a lost one made again."""
