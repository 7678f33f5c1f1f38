"""What every room stands on: time, chance, disk, numbers, records. Knows no other room."""

# Stands for the constant of this name in `typing`, which type checkers know by name alone: a module that
# imports types for annotations only asks this one, since loading `typing` takes a tenth of a start.
TYPE_CHECKING = False
