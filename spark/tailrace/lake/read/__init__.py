"""Read tables for users and followers, without a JVM."""
