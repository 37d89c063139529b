/* libefa.so.1: passes every call on to libibverbs.so.1, which holds the code and the state of both libraries. Structures
 * pass through as they are, so their types do not matter here. */
#include <stdint.h>

void *srd_efadv_create_driver_qp(void *pd, void *attr, uint32_t type);
void *srd_efadv_create_qp_ex(void *context, void *attr, void *efa_attr, uint32_t len);
int srd_efadv_query_ah(void *ah, void *attr, uint32_t len);
int srd_efadv_query_device(void *context, void *attr, uint32_t len);
void *srd_efadv_create_cq(void *context, void *attr, void *efa_attr, uint32_t len);
void *srd_efadv_cq_from_ibv_cq_ex(void *cq);
int srd_efadv_query_mr(void *mr, void *attr, uint32_t len);
int srd_efadv_query_qp_wqs(void *qp, void *sq_attr, void *rq_attr, uint32_t len);
int srd_efadv_query_cq(void *cq, void *attr, uint32_t len);
int srd_efadv_get_max_sq_depth(void *context, void *attr, uint32_t len);
int srd_efadv_get_max_rq_depth(void *context, void *attr, uint32_t len);
void *srd_efadv_qp_from_ibv_qp_ex(void *qp);
void *srd_efadv_create_comp_cntr(void *context, void *attr, void *efa_attr, uint32_t len);

void *efadv_create_driver_qp(void *pd, void *attr, uint32_t type)
{
	return srd_efadv_create_driver_qp(pd, attr, type);
}

void *efadv_create_qp_ex(void *context, void *attr, void *efa_attr, uint32_t len)
{
	return srd_efadv_create_qp_ex(context, attr, efa_attr, len);
}

int efadv_query_ah(void *ah, void *attr, uint32_t len)
{
	return srd_efadv_query_ah(ah, attr, len);
}

int efadv_query_device(void *context, void *attr, uint32_t len)
{
	return srd_efadv_query_device(context, attr, len);
}

void *efadv_create_cq(void *context, void *attr, void *efa_attr, uint32_t len)
{
	return srd_efadv_create_cq(context, attr, efa_attr, len);
}

void *efadv_cq_from_ibv_cq_ex(void *cq)
{
	return srd_efadv_cq_from_ibv_cq_ex(cq);
}

int efadv_query_mr(void *mr, void *attr, uint32_t len)
{
	return srd_efadv_query_mr(mr, attr, len);
}

int efadv_query_qp_wqs(void *qp, void *sq_attr, void *rq_attr, uint32_t len)
{
	return srd_efadv_query_qp_wqs(qp, sq_attr, rq_attr, len);
}

int efadv_query_cq(void *cq, void *attr, uint32_t len)
{
	return srd_efadv_query_cq(cq, attr, len);
}

int efadv_get_max_sq_depth(void *context, void *attr, uint32_t len)
{
	return srd_efadv_get_max_sq_depth(context, attr, len);
}

int efadv_get_max_rq_depth(void *context, void *attr, uint32_t len)
{
	return srd_efadv_get_max_rq_depth(context, attr, len);
}

void *efadv_qp_from_ibv_qp_ex(void *qp)
{
	return srd_efadv_qp_from_ibv_qp_ex(qp);
}

void *efadv_create_comp_cntr(void *context, void *attr, void *efa_attr, uint32_t len)
{
	return srd_efadv_create_comp_cntr(context, attr, efa_attr, len);
}
