"""What Pathcast makes of other people's files, held against readers that share nothing with it.

`make real-files` prints the table. One module a kind, named as its folder in `$PATHCAST_DATA/real-files`; each has

    expected(file) -> Usable | Unusable    what is in the file, read without Pathcast
    found(file, scratch) -> dict           the same facts as Pathcast reads them; TraceError if it refuses
"""

#: Folders of `real-files`, each with a module of its own here.
KINDS = ("pcap", "qlog", "pantheon", "tcpprobe", "ss", "iperf3", "mahi", "pperf")
