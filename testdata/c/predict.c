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
    affine_model *model = affine_load();
    CHECK(model != NULL);

    float x[3 * 2] = {1, 2, 3, 4, 5, 6};
    float y[3] = {0};
    CHECK(affine_predict(model, 3, x, y) == TFC_OK);
    CHECK(y[0] == 5 && y[1] == 11 && y[2] == 17);

    /* The batch size is a run-time dim: zero rows are fine. */
    CHECK(affine_predict(model, 0, x, y) == TFC_OK);

    float w[2] = {10, 1};
    CHECK(affine_set_w(model, w) == TFC_OK);
    CHECK(affine_predict(model, 1, x, y) == TFC_OK);
    CHECK(y[0] == 12);

    float old = -1;
    CHECK(affine_bump(model, 2.5f, &old) == TFC_OK);
    CHECK(old == 0);
    float count = 0;
    CHECK(affine_get_count(model, &count) == TFC_OK);
    CHECK(count == 2.5f);

    /* A wrong size is an error with a code, not a crash: also one whose bytes cannot be counted. */
    CHECK(affine_predict(model, -1, x, y) == TFC_USAGE);
    CHECK(strstr(affine_error(), "error[E") != NULL);
    CHECK(affine_predict(model, INT64_C(1) << 60, x, y) == TFC_DATA);
    CHECK(affine_predict(model, INT64_MAX, x, y) == TFC_IO);
    /* So are memory that is shared, and none at all. */
    CHECK(affine_predict(model, 1, x, x) == TFC_DATA);
    CHECK(strstr(affine_error(), "share memory") != NULL);
    CHECK(affine_predict(model, 1, NULL, y) == TFC_USAGE);
    CHECK(affine_get_w(model, NULL) == TFC_USAGE);
    CHECK(affine_predict(NULL, 1, x, y) == TFC_USAGE);
    CHECK(affine_get_w(NULL, w) == TFC_USAGE);

    /* What it has, without its header. */
    const tfc_signature *has = tfc_signature_of((tfc_model *)model);
    CHECK(has != NULL && strcmp(has->name, "affine") == 0 && has->entry_count == 2);
    CHECK(has->dim_count == 1 && strcmp(has->dims[0].name, "B") == 0 && has->dims[0].max == 1000);
    const tfc_entry *predict = &has->entries[0];
    CHECK(strcmp(predict->name, "predict") == 0 && strcmp(predict->doc, "Weighs the columns.") == 0);
    CHECK(predict->param_count == 1 && predict->result_count == 1 && predict->runner_count == 0);
    CHECK(strcmp(predict->params[0].type, "f32[B, 2]") == 0 && predict->params[0].dtype == TFC_F32);
    CHECK(predict->params[0].shape[0] == -1 && predict->params[0].shape[1] == 2);
    CHECK(has->var_count == 2 && strcmp(has->vars[0].name, "w") == 0 && has->vars[0].bytes == 8);

    /* And used without it: memory for a result of another type is refused. */
    const int64_t shape[] = {1, 2};
    const tfc_feed feed = {TFC_F32, 2, shape, x, sizeof x};
    double wide[3];
    int64_t sizes[1];
    tfc_tensor result = {TFC_F64, 1, sizes, wide, sizeof wide};
    CHECK(tfc_call((tfc_model *)model, predict->index, &feed, 1, &result, 1) == TFC_DATA);
    result.dtype = TFC_F32;
    CHECK(tfc_call((tfc_model *)model, predict->index, &feed, 1, &result, 1) == TFC_OK);
    CHECK(sizes[0] == 1);

    /* Checkpoints. */
    uint64_t step = 0;
    CHECK(tfc_checkpoint_restore((tfc_model *)model, "none", &step) == TFC_END);
    CHECK(tfc_checkpoint_save((tfc_model *)model, "ck", 7, 0) == TFC_OK);
    CHECK(tfc_reset((tfc_model *)model) == TFC_OK);
    CHECK(affine_get_count(model, &count) == TFC_OK && count == 0);
    CHECK(tfc_checkpoint_restore((tfc_model *)model, "ck", &step) == TFC_OK && step == 7);
    CHECK(affine_get_count(model, &count) == TFC_OK && count == 2.5f);

    affine_free(model);
    affine_free(NULL);
    puts("ok");
    return 0;
}
