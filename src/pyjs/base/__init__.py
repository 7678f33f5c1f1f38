"""What every room stands on: time, chance, disk, numbers. Knows no other room."""
