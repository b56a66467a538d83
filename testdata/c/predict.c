/* Uses a compiled model from C: load, call, read a variable, see an error. */
#include "affine.h"
#include <stdio.h>
#include <string.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, affine_error()); \
            return 1; \
        } \
    } while (0)

int main(void) {
    affine *model = affine_load();
    CHECK(model != NULL);

    float x[3 * 2] = {1, 2, 3, 4, 5, 6};
    float y[3] = {0};
    CHECK(affine_predict(model, 3, x, y) == 0);
    CHECK(y[0] == 5 && y[1] == 11 && y[2] == 17);

    /* The batch size is a run-time dim: zero rows are fine. */
    CHECK(affine_predict(model, 0, x, y) == 0);

    float w[2] = {10, 1};
    CHECK(affine_set_w(model, w) == 0);
    CHECK(affine_predict(model, 1, x, y) == 0);
    CHECK(y[0] == 12);

    float old = -1;
    CHECK(affine_bump(model, 2.5f, &old) == 0);
    CHECK(old == 0);
    float count = 0;
    CHECK(affine_get_count(model, &count) == 0);
    CHECK(count == 2.5f);

    /* A wrong size is an error with a code, not a crash. */
    CHECK(affine_predict(model, -1, x, y) != 0);
    CHECK(strstr(affine_error(), "error[E") != NULL);

    affine_free(model);
    puts("ok");
    return 0;
}
