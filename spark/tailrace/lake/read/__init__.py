"""Read tables back for people and followers, without a JVM."""
