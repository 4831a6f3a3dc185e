"""What an audit looks for in commits and files, whatever the rows say: changes by another hand."""
