"""What comes from a disk, the Hub or a user, checked: images, tensors, folders, paths, questions."""
