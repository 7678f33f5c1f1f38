"""The pages of the manual, executed: every command and program in them runs here."""
