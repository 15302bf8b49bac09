"""Configuration of servers: learned for each network, and deployed by client prefix."""
