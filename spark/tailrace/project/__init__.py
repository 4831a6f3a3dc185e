"""Projects of users: the files with which a project of one's own begins (`tailrace init`)."""
