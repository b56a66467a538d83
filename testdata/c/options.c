/* What a model may be told when it is loaded, and how its variables are read. */
#include "options.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, options_error()); \
            return 1; \
        } \
    } while (0)

static void hear(void *data, const char *line) {
    snprintf((char *)data, 64, "%s", line);
}

int main(void) {
    float loss = 0;
    options_model *plain = options_load();
    CHECK(plain != NULL);
    /* By default a loss that is NaN is an error. */
    CHECK(options_step(plain, NAN, &loss) == TFC_DATA);
    CHECK(strcmp(tfc_error_code((tfc_model *)plain), "E0533") == 0);
    /* Without a sandbox, the graph writes where it likes. */
    CHECK(options_leak(plain) == TFC_OK);
    CHECK(remove("../leaked.safetensors") == 0);
    options_free(plain);

    char heard[64] = "";
    tfc_options how;
    memset(&how, 0, sizeof how);
    how.threads = 1;
    how.allow_nan = 1;
    how.sandbox = ".";
    how.print = hear;
    how.print_data = heard;
    options_model *model = options_load_with(&how);
    CHECK(model != NULL);
    CHECK(options_step(model, NAN, &loss) == TFC_OK && isnan(loss));
    CHECK(options_tell(model, 2.5f) == TFC_OK);
    CHECK(strcmp(heard, "x: f32[] 2.5") == 0);
    CHECK(options_keep(model) == TFC_OK);
    CHECK(options_leak(model) == TFC_IO);
    CHECK(strcmp(tfc_error_code((tfc_model *)model), "E0810") == 0);
    CHECK(strstr(options_error(), "options.graph:18:") != NULL);
    CHECK(remove("../leaked.safetensors") != 0);

    /* Old variables are for those who write none. */
    tfc_stale_ok((tfc_model *)model, 1);
    CHECK(options_tell(model, 1) == TFC_OK);
    CHECK(options_step(model, 1, &loss) == TFC_USAGE || options_step(model, 1, &loss) == TFC_DATA);
    CHECK(strcmp(tfc_error_code((tfc_model *)model), "E0526") == 0);
    tfc_stale_ok((tfc_model *)model, 0);
    CHECK(options_step(model, 1, &loss) == TFC_OK);
    options_free(model);

    how.sandbox = "no-such-folder";
    CHECK(options_load_with(&how) == NULL);
    CHECK(strstr(options_error(), "no-such-folder") != NULL);
    puts("ok");
    return 0;
}
