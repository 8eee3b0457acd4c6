# The CUDA plug-in, built where nvcc is: NVCC=FILE, on the PATH, in /usr/local/cuda, or where mk/nvcc.sh put it. It is
# compiled for the H200's architecture and for the A100's, with portable code beside them for newer cards.
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc build/nvcc/bin/nvcc))
CU_SRC := $(sort $(wildcard src/backend/cuda/*.cu))
CU_HDR := $(wildcard src/backend/cuda/*.cuh src/backend/cuda/*.h src/backend/*.h src/base/*.h src/spec/*.h include/lily/*.h)
CU_OUT := build/cuda
CU_OBJ := $(CU_SRC:src/backend/cuda/%.cu=$(CU_OUT)/%.o) $(CU_OUT)/err.o
CU_ARCH ?= -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=compute_90
# States that were saved by one build of the kernels are not read by another.
CU_BUILD := $(firstword $(shell cat $(CU_SRC) $(wildcard src/backend/cuda/*.cuh) 2>/dev/null | sha256sum | cut -c1-12))
CU_FLAGS = -std=c++17 -O3 $(CU_ARCH) -Isrc -Iinclude -DLILY_VERSION='"$(VERSION)"' -DLILY_CUDA_BUILD='"$(CU_BUILD)"' \
  -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Werror all-warnings
PLUGIN := $(CU_OUT)/liblily-cuda.so

$(CU_OUT)/%.o: src/backend/cuda/%.cu $(CU_HDR) mk/cuda.mk
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(CU_FLAGS) -c $< -o $@
$(CU_OUT)/backend.o: $(CU_SRC)
$(CU_OUT)/pick.o: CU_FLAGS += -fmad=false # the bits of sample/
$(CU_OUT)/err.o: src/base/err.c $(CU_HDR)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_FLAGS) -O2 -fPIC -fvisibility=hidden -c $< -o $@
$(PLUGIN): $(CU_OBJ)
	$(Q)$(NVCC) -shared -Xlinker --no-undefined -cudart static -L$(dir $(NVCC))../lib $(CU_OBJ) -o $@
$(BUILD)/liblily-cuda.so: $(PLUGIN); @cp -f $< $@
# Nothing to build without nvcc, in cross builds and under sanitizers.
CUDA_BUILT := $(if $(NVCC),$(if $(SAN)$(CROSS),,liblily-cuda.so))
liblily-cuda.so: $(PLUGIN); @cmp -s $< $@ || { cp -f $< $@.tmp && mv -f $@.tmp $@; }
#: make cuda           the plug-in alone; says so when there is no nvcc
cuda:; @$(if $(CUDA_BUILT),$(MAKE) $(CUDA_BUILT),echo "SKIP the CUDA plug-in: no nvcc (mk/nvcc.sh fetches one)")
$(BUILD)/tests/bench/bench_cuda: %: %.o $(BUILD)/liblily.a
	$(Q)$(CC) $(CFLAGS_ALL) $^ $(LDLIBS_ALL) -o $@
#: make bundle         build/bundle: programs, libraries and data for a machine with a card where nothing can be built
bundle: $(BUILD)/lily $(addprefix $(BUILD)/tests/,golden/test_cuda state/test_bits kernels/check_kernels bench/bench_cuda) $(PLUGIN); @mk/bundle.sh $(BUILD) $(PLUGIN)
#: make check-cuda     everything that needs a card; make bench-cuda: speed on synthetic weights of the full size
check-cuda bench-cuda: bundle; @build/bundle/tests/cuda/$(@:%-cuda=%).sh
.PHONY: cuda liblily-cuda.so bundle check-cuda bench-cuda
