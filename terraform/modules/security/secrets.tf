# Values are put by whoever knows them (aws secretsmanager put-secret-value): a value in Terraform is a value in its state.
resource "aws_secretsmanager_secret" "this" {
  for_each = var.secrets

  #checkov:skip=CKV2_AWS_57:rotation is of whoever issues the credential; a Lambda that cannot change a broker's password would only break it
  name                    = "${var.context.name}/${each.key}"
  description             = each.value.description
  kms_key_id              = local.kms_key
  recovery_window_in_days = var.secret_recovery_days
}

locals {
  readable = {
    for reader in ["stream", "backfill", "airflow"] :
    reader => [for name, one in var.secrets : aws_secretsmanager_secret.this[name].arn if contains(one.readers, reader)]
  }
}
