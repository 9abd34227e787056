/* Loads libraries by their names and tells where each came from: NAME, FILE, the CUDA version it answers with.
 *
 * Linked against the C library of another release, it uses only what all of them have.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	for (int n = 1; n < argc; n++) {
		void *library = dlopen(argv[n], RTLD_NOW | RTLD_LOCAL);
		struct link_map *map;
		int version = 0;
		int (*ask)(int *);
		if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map)) {
			printf("%s\t\t%s\n", argv[n], dlerror());
			continue;
		}
		ask = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
		if (ask)
			ask(&version);
		printf("%s\t%s\t%d\n", argv[n], map->l_name, version);
	}
	return 0;
}
