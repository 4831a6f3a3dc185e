"""Say when in processing time: triggers, those made of others, and what is checked of a user's own."""
