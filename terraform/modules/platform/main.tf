locals {
  name      = "${var.project}-${var.environment}"
  namespace = coalesce(var.namespace, "${var.project}_${var.environment}")
  context = {
    name       = local.name
    account_id = var.account_id
    region     = var.region
    partition  = var.partition
  }
}

module "security" {
  source = "../security"

  context              = local.context
  existing_kms_key_arn = var.existing_kms_key_arn
  lake_bucket_arn      = module.lake.lake_bucket_arn
  artifacts_bucket_arn = module.lake.artifacts_bucket_arn
  artifacts_prefix     = var.artifacts_prefix
  landing              = var.landing
  databases            = concat([local.namespace], var.more_databases)
  applications         = { stream = module.streaming.stream_application.arn, backfill = module.streaming.backfill_application.arn }
  log_groups           = module.observability.log_group_arns
  msk                  = var.create_msk ? { cluster_name = "${local.name}-kafka" } : null
  airflow              = var.create_mwaa
  analyst_principals   = var.analyst_principals
  secrets              = var.secrets
  secret_recovery_days = var.force_destroy ? 0 : 30
}

module "lake" {
  source = "../lake"

  context          = local.context
  kms_key_arn      = module.security.kms_key_arn
  namespace        = local.namespace
  more_databases   = var.more_databases
  artifacts_prefix = var.artifacts_prefix
  noncurrent_days  = var.lake_days.noncurrent
  checkpoint_days  = var.lake_days.checkpoint
  log_days         = var.lake_days.logs
  access_logs      = var.access_logs
  encrypt_catalog  = var.encrypt_catalog
  force_destroy    = var.force_destroy
}

module "network" {
  source = "../network"

  context            = local.context
  existing           = var.existing_vpc
  cidr               = var.vpc_cidr
  zones              = var.zones == null ? formatlist("${var.region}%s", ["a", "b"]) : var.zones
  endpoints          = var.create_endpoints
  interface_services = var.endpoint_services
  airflow            = var.create_mwaa
  kafka              = var.create_msk
  kms_key_arn        = module.security.kms_key_arn
  log_days           = var.log_days
}

module "streaming" {
  source = "../streaming"

  context                  = local.context
  release_label            = var.release_label
  image_uri                = var.image_uri
  architecture             = var.architecture
  stream_capacity          = var.stream_capacity
  backfill_capacity        = var.backfill_capacity
  backfill_idle_minutes    = var.backfill_idle_minutes
  warm_backfill_workers    = var.warm_backfill_workers
  subnet_ids               = module.network.subnet_ids
  security_group_ids       = [module.network.jobs_security_group_id]
  create_msk               = var.create_msk
  kafka_security_group_ids = compact([module.network.kafka_security_group_id])
}

module "orchestration" {
  source = "../orchestration"

  context              = local.context
  create_mwaa          = var.create_mwaa
  airflow_version      = var.mwaa.airflow_version
  environment_class    = var.mwaa.environment_class
  max_workers          = var.mwaa.max_workers
  public_webserver     = var.mwaa.public_webserver
  plugins_version      = var.mwaa.plugins_version
  requirements_version = var.mwaa.requirements_version
  airflow_options      = var.mwaa.options
  kms_key_arn          = module.security.kms_key_arn
  execution_role_arn   = module.security.airflow_role_arn
  artifacts_bucket     = module.lake.artifacts_bucket
  artifacts_prefix     = var.artifacts_prefix
  subnet_ids           = module.network.subnet_ids
  security_group_id    = module.network.airflow_security_group_id
  secrets_prefix       = local.name
  runner               = local.runner
}

module "observability" {
  source = "../observability"

  context        = local.context
  kms_key_arn    = module.security.kms_key_arn
  log_days       = var.log_days
  streams        = var.streams
  emails         = var.alarm_emails
  applications   = { stream = module.streaming.stream_application.id, backfill = module.streaming.backfill_application.id }
  monthly_budget = var.monthly_budget
  budget_tag     = format("Environment$%s", var.environment)
}
