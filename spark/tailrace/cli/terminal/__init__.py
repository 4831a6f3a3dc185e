"""Speak to people: reports, news, progress, and errors of usage."""
