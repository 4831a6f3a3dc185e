"""What tests share: strategies for definitions and epochs, and the laws as functions."""
