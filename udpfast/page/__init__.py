"""Reports: the common look of our pages, figures and numbers."""
