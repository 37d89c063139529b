/* What the programs of this folder do about calls of libfabric that fail: they end. */
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>

#define DO(call)                                                                            \
	do {                                                                                \
		long result_ = (call);                                                      \
		if (result_ < 0) {                                                          \
			fprintf(stderr, "%s: %s\n", #call, fi_strerror((int)-result_));     \
			exit(1);                                                            \
		}                                                                           \
	} while (0)
