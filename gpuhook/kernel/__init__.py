"""What the kernel offers: system calls, files of the host, cgroups. The only room that knows ctypes, with driver/."""
