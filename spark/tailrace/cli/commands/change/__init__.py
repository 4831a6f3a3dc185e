"""Commands that change tables, send signals or watermark declarations to a running stream, or generate sample logs."""
