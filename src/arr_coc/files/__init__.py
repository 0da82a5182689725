"""Open and check what comes from disks, the Hub and users: images, tensors, folders, paths, questions."""
