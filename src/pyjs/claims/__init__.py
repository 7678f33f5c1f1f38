"""JSON Web Tokens of NATS: operators, accounts and users, their claims and permissions."""
