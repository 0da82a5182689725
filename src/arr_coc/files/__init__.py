"""Checked input from disks, the Hub and users: images, tensors, folders, paths, questions."""
