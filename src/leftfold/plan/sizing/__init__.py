"""From rates, sizes and keys to partitions, brokers, disk, cores, state and memory, with the arithmetic shown. Pure."""
