"""The values and gradients of the metric programs: by closed forms and sorting, and by solving the programs."""
