"""What stands between the service of decisions and other servers: it brings samples in and carries decisions out.

`client` asks the service. `feed` sends it samples: of the kernel's flows, and of players by CMCD. `steer` carries its
decisions to `haproxy`.
"""
